package httpapi

import (
	"maps"
	"slices"
)

// Routes are the calls that take an operator, sorted.
func (s Services) Routes() []string { return slices.Sorted(maps.Keys(s.routes())) }
