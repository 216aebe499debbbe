"""Other tasks than captioning, on the same attention: a data set, a model, a loss and an evaluation each."""
