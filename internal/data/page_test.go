package data_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
)

// TestPagesAreTheList checks that all pages together have each value once and in order. No page
// may have more values or bytes than the limit.
func TestPagesAreTheList(t *testing.T) {
	large := `"` + strings.Repeat("x", 60<<10) + `"`
	for _, tc := range []struct {
		reason string
		count  int
		value  string
		prefix string
		pages  int
	}{
		{"none", 0, "1", "", 1},
		{"few", 10, "1", "", 1},
		{"exactly a page", 2000, "1", "", 1},
		{"one more", 2001, "1", "", 2},
		{"many", 9000, "1", "", 5},
		{"many below a prefix", 9000, "1", "some/7", 1},
		{"large ones", 40, large, "", 3},
	} {
		s := data.NewState()
		for i := range tc.count {
			s.Apply(tutti.Event{Seq: uint64(i + 1), Body: &tutti.ValueSet{Key: fmt.Sprintf("some/%d/%d", i*7919%10, i), Value: json.RawMessage(tc.value)}})
		}
		var got []string
		pages, after := 0, ""
		for more := true; more; pages++ {
			var values []api.ValueView
			values, more = s.Page(tc.prefix, after, func(string) bool { return true })
			if len(values) > 2000 {
				t.Errorf("%s: a page of %d", tc.reason, len(values))
			}
			for _, v := range values {
				got = append(got, v.Key)
				after = v.Key
			}
		}
		var want []string
		for _, v := range s.Values(tc.prefix) {
			want = append(want, v.Key)
		}
		if diff := cmp.Diff(want, got); diff != "" || pages != tc.pages {
			t.Errorf("%s: %d pages, want %d; -list +pages\n%s", tc.reason, pages, tc.pages, diff)
		}
	}
}
