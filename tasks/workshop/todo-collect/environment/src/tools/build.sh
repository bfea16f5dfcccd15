
call()
value_2 = 2
value_3 = 3
value_4 = 4
value_5 = 5
value_6 = 6
# TODO (bo): blank
call()
value_9 = 9
call()
x = 11  # TODO(cleo):handle time-outs  
call()
call()

