# TODO (bo): blank
value_1 = 1
x = 2  # TODO(ann):cache it  
value_3 = 3
call()


value_7 = 7
call()
# todo(ann): lower
# todo(ann): lower
value_11 = 11
# TODO: nobody's


value_15 = 15
call()

value_18 = 18
value_19 = 19
