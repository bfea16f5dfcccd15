#!/bin/bash
# Passes when /app holds exactly these directories (d:) and regular files (f:), with these
# contents. One newline at the end of a file may be there or not.
declare -A want=(
  [f:data.md]=silent
  [f:index.json]=silent
)
reward=/logs/verifier/reward.txt
[[ -d /logs/verifier ]] || mkdir -p /logs/verifier
echo 0 > "$reward"
fail() { echo "FAIL: $1"; exit 0; }
shopt -s globstar dotglob nullglob
LC_ALL=C
[[ -d /app && ! -L /app ]] && cd /app || fail "/app is not a directory"
found=0
for path in **; do
  path=${path%/}
  if [[ -L $path ]]; then fail "$path is a symbolic link"
  elif [[ -d $path ]]; then key=d:$path
  elif [[ -f $path ]]; then key=f:$path
  else fail "$path is neither a file nor a directory"
  fi
  [[ ${want[$key]+x} ]] || fail "$path should not be there"
  found=$((found + 1))
  [[ $key == d:* ]] && continue
  [[ -r $path ]] || fail "$path can't be read"
  if IFS= read -r -d '' content < "$path"; then fail "$path contains a NUL byte"; fi
  [[ ${content%$'\n'} == "${want[$key]}" ]] || fail "$path has other contents: ${content@Q}"
done
[[ $found == "${#want[@]}" ]] || fail "$found of ${#want[@]} paths are there"
echo 1 > "$reward"
