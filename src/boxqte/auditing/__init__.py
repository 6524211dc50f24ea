"""Many questions at once: audits, policies, and what a report will show."""
