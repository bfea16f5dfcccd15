x = 0  # TODO(cleo):remove after version 2  
value_1 = 1


# TODO(Ann): capital
value_5 = 5
value_6 = 6

value_8 = 8
call()

call()
value_12 = 12

