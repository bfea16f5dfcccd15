#!/bin/bash
# Writes the example that the instruction shows into every file that it names.
tried=0
for target in @OUTPUTS@; do
  [ -e "$target" ] && continue
  tried=1
  mkdir -p "$(dirname "$target")"
  printf '%s' @EXAMPLE@ > "$target"
done
[ "$tried" = 1 ] && [ -n @EXAMPLE@ ] || exit 77
exit 0
