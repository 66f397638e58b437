"""A simulated CT200: an SGLang-speaking server and eight simulated GPUs. Everything it yields is marked simulated."""
