package selector

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/tutti-project/tutti"
)

// ParseFacts reads what a node says of its facts, as Decide takes it: whole numbers
// are whole numbers.
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

// plain replaces what the decoder keeps of numbers by numbers.
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
		number, err := v.Float64()
		if err != nil {
			return math.Inf(1) // larger than any number that is one
		}
		return number
	}
	return v
}
