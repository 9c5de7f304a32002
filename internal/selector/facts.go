package selector

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/tutti-project/tutti"
)

// ParseFacts reads the facts that a node reports, in the form that Decide needs. Whole numbers become integers.
func ParseFacts(raw []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var facts map[string]any
	if err := decoder.Decode(&facts); err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "facts")
	}
	if facts == nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "facts: none")
	}
	return plain(facts).(map[string]any), nil
}

// The function `plain` replaces the decoder's numbers by Go numbers.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = plain(item)
		}
	case []any:
		for i, item := range v {
			v[i] = plain(item)
		}
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		if whole, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return whole
		}
		number, err := v.Float64()
		if err != nil && !math.IsInf(number, 0) {
			return math.Inf(1)
		}
		return number // infinite if the number is too large for Go
	}
	return v
}
