"""Rules: data that names regions and the values in them (the top-level `rules/` folder, shipped inside the package).

Finding never depends on a rule: a value that none names is still found, shown and proven.
"""

from graphdiff.rules.check import rules_check
from graphdiff.rules.listing import rules_list, rules_show
from graphdiff.rules.model import Rule, load_rules
from graphdiff.rules.naming import Naming, name_values

__all__ = ["Naming", "Rule", "load_rules", "name_values", "rules_check", "rules_list", "rules_show"]
