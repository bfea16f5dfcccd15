# todo(ann): lower
x = 1  # TODO(bo):handle time-outs  
value_2 = 2
call()
    # see TODO(ann):   use a set here
call()
value_6 = 6
value_7 = 7
