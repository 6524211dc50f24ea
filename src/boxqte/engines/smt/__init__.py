"""The paper's engines: BoxQTE (`smt`) and CegarQuant (`cegar`), on z3. See docs/smt.md."""
