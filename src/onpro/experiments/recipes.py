"""A method's settings for a data set, varied by a recipe."""

from dataclasses import replace

from onpro.errors import unknown
from onpro.methods import Settings, method
from onpro.recipes import DATA, RECIPES, Recipe, data_values, recipes

__all__ = ["DATA", "RECIPES", "Recipe", "data_values", "recipes", "settings_for"]


def settings_for(method_name: str, data: str, recipe: str | None = None) -> Settings:
    """The defaults, then the data set's values, then those of the recipe."""
    kind = method(method_name)  # first, for a package of its own brings recipes along
    values = dict(data_values(method_name, data))
    if recipe is not None:
        known = recipes(method_name)
        if recipe not in known:
            raise unknown(f"recipe of {method_name}", recipe, known)
        values |= known[recipe].values
    return replace(kind.settings_type(), **values)
