"""Tables of plans: the plan, other plans, how a job departs from it, and bars of a step."""
