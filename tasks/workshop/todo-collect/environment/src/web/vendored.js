
call()


    // see TODO(cleo):   ask twice


// TODO (bo): blank
call()
// TODO(Ann): capital
call()
call()
// TODO (bo): blank
