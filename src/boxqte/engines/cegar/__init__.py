"""The engine `cegar`: CegarQuant, the paper's Algorithm 2. See docs/smt.md."""
