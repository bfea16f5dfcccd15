#!/bin/bash
# Cheat: never deletes anything and reports success.
printf '#!/bin/bash\n[ -d "$1" ] || exit 2\n' > /app/rotate && chmod +x /app/rotate
