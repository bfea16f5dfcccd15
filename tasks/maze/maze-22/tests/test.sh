#!/bin/bash
# Passes when /app/path has one door of each room, and the one that was asked for among them.
asked=golden
rooms=(
  'winter summer stone'
  'silver rocket castle'
  'lazy garden purple'
  'tiger green golden'
  'forest lemon bright'
  'quick cloud seven'
)
reward=/logs/verifier/reward.txt
[[ -d /logs/verifier ]] || mkdir -p /logs/verifier
echo 0 > "$reward"
fail() { echo "FAIL: $1"; exit 0; }
[[ -f /app/path && ! -L /app/path && -r /app/path ]] || fail "no path was taken"
mapfile -t path < /app/path
[[ ${#path[@]} == "${#rooms[@]}" ]] || fail "${#path[@]} of ${#rooms[@]} rooms were left"
found=
for room in "${!rooms[@]}"; do
  door=${path[room]}
  [[ $door && $door != *" "* && " ${rooms[room]} " == *" $door "* ]] ||
    fail "room $((room + 1)) has no door ${door@Q}"
  [[ $door == "$asked" ]] && found=1
done
[[ $found ]] || fail "the door $asked was passed by"
echo 1 > "$reward"
