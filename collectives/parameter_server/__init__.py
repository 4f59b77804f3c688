"""Parameter server over messages: servers hold the parameters, learners send gradients."""
