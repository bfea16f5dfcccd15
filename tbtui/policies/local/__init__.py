"""The embedded policy: a Llama-shaped language model of 0.8M parameters in NumPy.

client, connection, messages    LocalPolicy, the Policy that engines use; it batches requests
                                and owns the child process
process                         the child process around a Learner
learner, checkpoint_file        trained and published weights, optimiser, versions; save, load
sampling                        batched sampling with a key/value cache
gradient                        loss and gradient of a batch, packed and spread over threads
model, forward, backward, optimizer
                                the arithmetic
tokenizer, renderer, terminus   text to tokens and back
shipped, checkpoint/            the shipped checkpoint; tests/by_hand/starter makes it
export                          to a Hugging Face Llama checkpoint
"""
