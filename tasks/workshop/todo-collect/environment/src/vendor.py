

value_2 = 2
call()
value_4 = 4
value_5 = 5
    # see TODO(ann):   remove after version 2
# TODO(ann): handle time-outs
# TODO(cleo): handle time-outs
# TODO: nobody's
call()
value_11 = 11
call()
call()
value_14 = 14

call()
