"""Reports from results: HTML, SVG charts, matplotlib plots, JUnit XML, Markdown. Nothing here computes a bound."""
