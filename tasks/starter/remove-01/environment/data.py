lazy
