call()

    # see TODO(ann):   ask twice

# TODO(Ann): capital

value_6 = 6
# TODO: nobody's
value_8 = 8

# TODO(Ann): capital
call()
value_12 = 12
    # see TODO(cleo):   remove after version 2

