package httpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tutti-project/tutti/internal/servertest"
)

// TestAListComesPageByPage checks that the client requests pages until it has
// the whole list.
func TestAListComesPageByPage(t *testing.T) {
	f := servertest.Start(t)
	const count = 2500
	for i := range count {
		if err := f.SetValue(servertest.Operator(), fmt.Sprintf("many/%d", i), json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
	}
	values, err := client(t, f).ListValues(t.Context(), "many")
	seen := map[string]bool{}
	for _, v := range values {
		seen[v.Key] = true
	}
	if err != nil || len(values) != count || len(seen) != count {
		t.Errorf("%d values, %d of them different, %v: want %d", len(values), len(seen), err, count)
	}
}
