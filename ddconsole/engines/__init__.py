"""What an inference server is: arguments, readiness, log grammar, counters, failure signatures."""
