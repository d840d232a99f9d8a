"""Filters: which events a host wants or publishes, in a normal form for index and matching.

The normal form is a union of conjunctions; a conjunction gives ranges of keys for the attributes
that it constrains. No conjunction covers another, no two could be written as one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self, cast

from dzflow import expr
from dzflow.attribute import Attribute, FieldError, WrongType, near, shown
from dzflow.errors import BadInput
from dzflow.filter_text import ranges_text
from dzflow.intervals import (
    Key,
    Ranges,
    complement,
    contains,
    covers,
    intersect,
    normal,
    prefixed,
    union,
)
from dzflow.space import Space

OPERATORS = ("eq", "ne", "lt", "lte", "gt", "gte", "in", "between", "prefix")
MAX_CONJUNCTIONS = 64
MAX_LIST = 1_024  # objects in a list, before they are simplified
MAX_VALUES = 4_096  # values of one `in`

_ORDER = frozenset({"lt", "lte", "gt", "gte", "between"})
_MAX_BETWEEN = 4 * MAX_CONJUNCTIONS  # in between; a later `and` may reduce the number
# Values read and pairs of conjunctions looked at, about 2 us each. A filter that is at the limit
# keeps the process that normalises it busy for some hundredths of a second.
MAX_WORK = 20_000
# For filters that are stored: earlier releases accepted filters of more work, and these stay valid.
STORED_WORK = 500_000


class BadFilter(FieldError):
    """The filter has none of the three forms."""


class BadOperator(FieldError):
    """The operator does not exist, or not for attributes of this type."""


class EmptyRange(FieldError):
    """A condition has an empty range or an empty list of values."""


class EmptyFilter(BadInput):
    """No event can match the filter."""


class TooManyConjunctions(BadInput):
    """The filter has too many alternatives, or finding out how many takes too much work."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or f"the filter comes to more than {MAX_CONJUNCTIONS} alternatives (after `and`, `or` "
            "and `not` are multiplied out); simplify it or use several filters"
        )


@dataclass(frozen=True)
class Conjunction:
    """Ranges of keys per constrained attribute, none of them empty or the whole domain."""

    ranges: Mapping[str, Ranges]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", MappingProxyType(dict(self.ranges)))

    def __hash__(self) -> int:
        return hash(frozenset(self.ranges.items()))

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Ranges]]]:
        return type(self), (dict(self.ranges),)  # a mapping proxy cannot be pickled

    def covers(self, other: "Conjunction") -> bool:
        """Whether every event that matches the other one matches this one."""
        for name, ranges in self.ranges.items():
            inner = other.ranges.get(name)
            if inner is None or not covers(ranges, inner):
                return False
        return True


EVERYTHING = Conjunction({})

# Position, first interval, the intervals after it: most ranges have one interval only.
_Test = tuple[int, Key, Key | None, Ranges]


@dataclass(frozen=True)
class Filter:
    """Any of some conjunctions, in normal form; filters with the same normal form are equal."""

    any: tuple[Conjunction, ...]
    _tests: tuple[tuple[_Test, ...], ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, space: Space, conjunctions: Iterable[Conjunction]) -> Self:
        """The normal form of a union; EmptyFilter or TooManyConjunctions if there is none."""
        algebra = _Algebra(space)
        checked = [part for given in conjunctions for part in algebra.check(given)]
        return cls._of(space, algebra.simplify(checked))

    @classmethod
    def _of(cls, space: Space, normal_form: Sequence[Conjunction]) -> Self:
        if not normal_form:
            raise EmptyFilter("no event can match the filter: its conditions exclude each other")
        if len(normal_form) > MAX_CONJUNCTIONS:
            raise TooManyConjunctions
        tests = tuple(
            tuple(
                (space.positions[name], *ranges[0], ranges[1:])
                for name, ranges in conjunction.ranges.items()
            )
            for conjunction in normal_form
        )
        return cls(tuple(normal_form), tests)

    def matches(self, keys: Sequence[Key]) -> bool:
        """Whether the event with these keys (from `Space.keys`) matches, exactly."""
        key: Any
        low: Any
        high: Any
        for tests in self._tests:
            for position, low, high, more in tests:
                key = keys[position]
                if key < low:
                    break
                if high is not None and key >= high and not contains(more, key):
                    break
            else:
                return True
        return False

    def covers(self, other: "Filter") -> bool:
        """True only if every event that matches the other filter matches this one.

        It may be False although that is so, if only several conjunctions together cover one.
        """
        return all(any(mine.covers(theirs) for mine in self.any) for theirs in other.any)


def parse_filter(space: Space, source: object, work: int = MAX_WORK) -> Filter:
    """The filter that an object, a list of objects or an expression stands for.

    Raises subclasses of BadInput only; errors in a list say at which index. A filter that takes
    more than the given work is refused.
    """
    algebra = _Algebra(space, work)
    if isinstance(source, str):
        return Filter._of(space, algebra.evaluate(expr.parse(source)))
    if isinstance(source, Mapping):
        return Filter._of(space, algebra.simplify(algebra.read(source)))
    if not isinstance(source, list | tuple):
        forms = "an object, a list of objects or a text"
        raise BadFilter(f"a filter is {forms}, got {shown(source)}")
    if len(source) > MAX_LIST:
        raise TooManyConjunctions(f"a filter has at most {MAX_LIST} objects, got {len(source)}")
    found: list[Conjunction] = []
    for i, item in enumerate(source):
        try:
            if not isinstance(item, Mapping):
                raise BadFilter(f"expected an object, got {shown(item)}")
            found += algebra.read(item)
        except FieldError as error:
            error.index = i
            raise
    return Filter._of(space, algebra.simplify(found))


def conjunction_text(space: Space, conjunction: Conjunction) -> str:
    """The conjunction as a readable expression; `parse_filter` reads it back."""
    return ranges_text(space, conjunction.ranges)


def condition(attribute: Attribute, operator: object, operand: object) -> Ranges:
    """The keys for which a condition holds; there may be none, as for `lt` the minimum."""
    if operator not in OPERATORS:
        text = f"{attribute.name}: no operator {shown(operator)}; there are {', '.join(OPERATORS)}"
        raise BadOperator(text + near(operator, OPERATORS), attribute.name)
    if (operator in _ORDER and attribute.type == "bool") or (
        operator == "prefix" and attribute.type != "string"
    ):
        text = f"{attribute.name}: {operator} is not for type {attribute.type}"
        raise BadOperator(text, attribute.name)
    start, end = attribute.domain
    match operator:
        case "eq" | "ne":
            key = attribute.key(operand)
            point: Ranges = ((key, attribute.after(key)),)
            return point if operator == "eq" else complement(point, attribute.domain)
        case "lt":
            return normal([(start, attribute.cut(operand)[0])])
        case "lte":
            return normal([(start, attribute.cut(operand)[1])])
        case "gt":
            return normal([(attribute.cut(operand)[1], end)])
        case "gte":
            return normal([(attribute.cut(operand)[0], end)])
        case "prefix":
            return (prefixed(cast(bytes, attribute.key(operand))),)
    values = _values(attribute, str(operator), operand)
    if operator == "in":
        keys = [attribute.key(value) for value in values]
        return normal([(key, attribute.after(key)) for key in keys])
    if len(values) != 2:
        raise WrongType(f"{attribute.name}: between takes two values", attribute.name)
    (low, _), (_, high) = attribute.cut(values[0]), attribute.cut(values[1])
    ranges = normal([(low, high)])
    if not ranges:
        text = f"nothing is between {shown(values[0])} and {shown(values[1])}"
        raise EmptyRange(f"{attribute.name}: {text}", attribute.name)
    return ranges


def _values(attribute: Attribute, operator: str, operand: object) -> list[object]:
    if not isinstance(operand, list | tuple):
        text = f"{attribute.name}: {operator} takes a list, got {shown(operand)}"
        raise WrongType(text, attribute.name)
    if not operand:
        raise EmptyRange(f"{attribute.name}: {operator} needs values, got none", attribute.name)
    if len(operand) > MAX_VALUES:
        text = f"{attribute.name}: {operator} takes at most {MAX_VALUES} values"
        raise BadFilter(f"{text}, got {len(operand)}", attribute.name)
    return list(operand)


class _Algebra:
    """Unions, intersections and complements of conjunctions, with a bound on the work."""

    def __init__(self, space: Space, work: int = MAX_WORK) -> None:
        self._space = space
        self._work = work

    def read(self, source: Mapping[object, object]) -> list[Conjunction]:
        """The conjunction that an object stands for; none if it contradicts itself."""
        found: dict[str, Ranges] = {}
        for name, conditions in source.items():
            attribute = self._space.attribute(name)
            if not isinstance(conditions, Mapping):
                conditions = {"eq": conditions}
            elif not conditions:
                text = f"{attribute.name}: needs an operator, such as {{'eq': …}}"
                raise BadOperator(text, attribute.name)
            ranges: Ranges | None = None
            for operator, operand in conditions.items():
                self._spend(len(operand) if isinstance(operand, list | tuple) else 1)
                holds = condition(attribute, operator, operand)
                ranges = holds if ranges is None else intersect(ranges, holds)
            assert ranges is not None
            found[attribute.name] = ranges
        return self._conjunction(found)

    def check(self, given: Conjunction) -> list[Conjunction]:
        """The conjunction within the domains of its attributes; none if nothing is left of it."""
        domains = {name: (self._space.attribute(name).domain,) for name in given.ranges}
        ranges = given.ranges.items()
        return self._conjunction({name: intersect(normal(r), domains[name]) for name, r in ranges})

    def evaluate(self, node: expr.Node, *, negated: bool = False) -> list[Conjunction]:
        """The normal form of an expression or of its negation; empty if nothing matches."""
        match node:
            case expr.Constant(value):
                return [EVERYTHING] if value != negated else []
            case expr.Condition(name, operator, operand):
                self._spend(len(operand) if isinstance(operand, list | tuple) else 1)
                try:
                    attribute = self._space.attribute(name)
                    ranges = condition(attribute, operator, operand)
                except FieldError as error:
                    error.position = node.position
                    raise
                if negated:
                    ranges = complement(ranges, attribute.domain)
                return self._conjunction({name: ranges})
            case expr.Not(part):
                return self.evaluate(part, negated=not negated)
            case expr.Junction(word, parts):
                found = [self.evaluate(part, negated=negated) for part in parts]
                if (word == "or") != negated:
                    return self.simplify(part for parts in found for part in parts)
                # The short ones first: what they rule out need not be multiplied.
                found.sort(key=len)
                product = found[0]
                for factor in found[1:]:
                    if factor != product:
                        product = self.simplify(self._products(product, factor))
                return product

    def simplify(self, conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
        """The same union without covered conjunctions, and with pairs merged where possible."""
        given = list(conjunctions)
        if len(given) < 2:
            return given  # the common case
        self._spend(sum(1 + _intervals(conjunction) // 8 for conjunction in given))
        found: list[Conjunction] = []
        # Sorted, so that the order in which alternatives were written does not matter.
        for new in sorted(set(given), key=self._order):
            i = 0
            work = 1 + _intervals(new) // 8
            while i < len(found):
                self._spend(work)
                joined = self._join(found[i], new)
                if joined is None:
                    i += 1
                elif joined is found[i]:
                    break
                else:
                    # The merged one may merge with others that its parts could not.
                    del found[i]
                    new, i = joined, 0
            else:
                found.append(new)
        if len(found) > _MAX_BETWEEN:
            raise TooManyConjunctions
        return sorted(found, key=self._order)

    def _products(
        self, one: Iterable[Conjunction], other: Sequence[Conjunction]
    ) -> Iterable[Conjunction]:
        for left in one:
            for right in other:
                self._spend()
                found = dict(left.ranges)
                for name, ranges in right.ranges.items():
                    if name in found:
                        self._spend(len(ranges) + len(found[name]))
                        ranges = intersect(found[name], ranges)
                    found[name] = ranges
                yield from self._conjunction(found)

    def _join(self, one: Conjunction, other: Conjunction) -> Conjunction | None:
        """The one conjunction that is the union of the two, if there is one."""
        if len(one.ranges) > len(other.ranges):
            one, other = other, one
        if not one.ranges.keys() <= other.ranges.keys():
            return None
        if one.covers(other):
            return one
        if len(one.ranges) < len(other.ranges):
            return None
        if other.covers(one):
            return other
        name, *more = (name for name, mine in one.ranges.items() if mine != other.ranges[name])
        if more:
            return None
        merged = union(one.ranges[name], other.ranges[name])
        return self._conjunction({**one.ranges, name: merged})[0]

    def _conjunction(self, found: Mapping[str, Ranges]) -> list[Conjunction]:
        """One conjunction, or none if some attribute has no values left."""
        if not all(found.values()):
            return []
        domains = {name: (self._space.attribute(name).domain,) for name in found}
        bound = {name: ranges for name, ranges in found.items() if ranges != domains[name]}
        return [Conjunction(bound)]

    def _order(self, conjunction: Conjunction) -> list[tuple[int, list[tuple[Key, bool, Key]]]]:
        return sorted(
            (
                self._space.positions[name],
                [(low, high is None, low if high is None else high) for low, high in ranges],
            )
            for name, ranges in conjunction.ranges.items()
        )

    def _spend(self, work: int = 1) -> None:
        self._work -= work
        if self._work < 0:
            raise TooManyConjunctions


def _intervals(conjunction: Conjunction) -> int:
    return sum(map(len, conjunction.ranges.values()))
