"""The training forward pass: the model of docs' model specification, batched, differentiable, one GPU."""
