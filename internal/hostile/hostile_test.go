package hostile_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tutti-project/tutti/internal/hostile"
)

func TestMangleSaysTheSameForTheSameSeed(t *testing.T) {
	raw := []byte(`{"run":"a","list":[1,{"x":null}],"n":1.50,"o":{"a":"b","c":"d"}}`)
	changed := 0
	for seed := range uint64(500) {
		once, again := hostile.Mangle(raw, seed), hostile.Mangle(raw, seed)
		if !bytes.Equal(once, again) || !json.Valid(once) {
			t.Fatalf("seed %d: %.200s and %.200s: want the same JSON", seed, once, again)
		}
		if seed == 0 && !bytes.Equal(once, raw) {
			t.Errorf("seed 0 made %s", once)
		}
		if !bytes.Equal(once, raw) {
			changed++
		}
	}
	if changed < 400 {
		t.Errorf("%d of 500 seeds changed anything", changed)
	}
	if got := hostile.Mangle([]byte("{"), 1); string(got) != "{" {
		t.Errorf("what is no JSON became %q", got)
	}
}
