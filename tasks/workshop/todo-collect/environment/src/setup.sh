# TODO(Ann): capital
# TODO(cleo): remove after version 2
call()
value_3 = 3
call()
# TODO (bo): blank
value_6 = 6


x = 9  # TODO(bo):explain why: it is odd  
call()
value_11 = 11
# TODO(cleo): use a set here
