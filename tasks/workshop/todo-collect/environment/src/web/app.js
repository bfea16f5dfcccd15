call()
value_1 = 1
// TODO (bo): blank
value_3 = 3


call()
// todo(ann): lower
x = 8  // TODO(ann):remove after version 2  
// TODO(bo): explain why: it is odd
value_10 = 10
value_11 = 11
// TODO(bo): remove after version 2
value_13 = 13
call()


value_17 = 17
// TODO(bo): cache it

value_20 = 20
