"""How the starter tasks and the embedded policy's checkpoint are made.

`python -m tests.by_hand.starter tasks DIRECTORY` writes the committed set of 48 + 24 tasks, the
same bytes each time; `python -m tests.by_hand.starter model DIRECTORY` makes tokenizer.json, the
same bytes each time, and policy.npz, in some minutes on one core.

world                   draws tasks: eight kinds of small file work with random names and words
write                   turns them into Harbor task directories
demonstrations          conversations about them, good and flawed, in a simulated_terminal
warm_start              learns tokenizer and weights from demonstrations
"""
