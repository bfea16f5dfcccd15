"""The embedded policy: a Llama-shaped language model of 0.8M parameters in NumPy.

client     LocalPolicy: the Policy that engines use; batches requests, owns the child process
process    the child process: one compute loop around a Learner
learner    trained weights, published weights, optimiser, versions; save and load
sampling   batched sampling with a key/value cache
gradient   loss and gradient of a batch of data, packed and spread over threads
forward, backward, losses, optimizer, model     the arithmetic
tokenizer, renderer, terminus                   text to tokens and back
warm_start, demonstrations, simulated_terminal  how the shipped checkpoint was made
export     to a Hugging Face Llama checkpoint
"""
