"""Tables of plans: the plan, alternatives, how a job departs from it, and bars of a step."""
