

    // see TODO(bo):   use a set here
// todo(ann): lower
value_4 = 4
    // see TODO(ann):   remove after version 2
    // see TODO(cleo):   ask twice
call()
value_8 = 8
value_9 = 9
// todo(ann): lower
call()
call()
value_13 = 13
call()
value_15 = 15
value_16 = 16

value_18 = 18
call()
// TODO (bo): blank

value_22 = 22

call()
call()
value_26 = 26

