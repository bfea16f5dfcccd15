# TODO(cleo): cache it
value_1 = 1

# TODO(ann): cache it
value_4 = 4

value_6 = 6
value_7 = 7
