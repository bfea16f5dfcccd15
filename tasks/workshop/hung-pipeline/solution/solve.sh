#!/bin/bash
set -euo pipefail
cp /solution/collect.py /app/nightly/collect.py
rm -f /app/nightly/nightly.lock
cat > /app/nightly/run <<'SH'
#!/bin/bash
# Nightly report: run DATA OUTPUT
here=$(cd "$(dirname "$0")" && pwd)
data=$1
output=$2

if [ ! -d "$data" ]; then
  echo "run: $data is no directory" >&2
  exit 1
fi

# Only one run at a time. The kernel drops this lock when its holder ends, however that happens.
exec 9> "$here/nightly.lock"
flock 9

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkfifo "$work/pipe"
python3 "$here/collect.py" "$data" "$work/pipe" "$work/skipped" 9>&- &
python3 "$here/report.py" "$work/pipe" "$work/skipped" > "$output" 9>&- && wait $!
SH
/app/nightly/run /app/data /app/report.txt
