"""Expressions: what a program computes from its variables before they become arguments of a factor."""

# An expression is built once, when the program runs, and evaluated at any statistics of the variables: it returns
# the statistics of its own value that a factor needs. It is affine in those of each variable, because a
# product takes at most two independent variables, and a category indexes by averaging, \(T(x_z) = \sum_k z_k T(x_k)\).
#
# | file | expressions |
# |---|---|
# | `interface` | `Expression`, the `Environment` where one is evaluated, `Variable`, `KnownValue` and `Input` |
# | `members` | `Indexed`, \(x_z\), and `Sliced` |
# | `products` | `Times`, \(W z\), `Sum`, `Multiple`, \(c x\), `RateProduct`, `ScaleProduct`, and `StickBreaking` |

from lamu.graphs.expressions.interface import (
    Environment,
    Expression,
    Input,
    KnownValue,
    Value,
    Variable,
    common_shape,
    lifted,
    repeated_picks,
    without_value,
)
from lamu.graphs.expressions.members import Indexed, Sliced
from lamu.graphs.expressions.products import Multiple, RateProduct, ScaleProduct, StickBreaking, Sum, Times

__all__ = [
    "Environment",
    "Expression",
    "Indexed",
    "Input",
    "KnownValue",
    "Multiple",
    "RateProduct",
    "ScaleProduct",
    "Sliced",
    "StickBreaking",
    "Sum",
    "Times",
    "Value",
    "Variable",
    "common_shape",
    "lifted",
    "repeated_picks",
    "without_value",
]
