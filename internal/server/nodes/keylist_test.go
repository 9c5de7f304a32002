package nodes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
)

// TestASharedListIsTheListOfTheMessage compares each list with a list that is decoded alone. The lists repeat, differ in one
// byte, or are no lists.
func TestASharedListIsTheListOfTheMessage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lists := &keyLists{}
		for range 30 {
			raw := json.RawMessage(rapid.SampledFrom([]string{"", "null", "[]", "{}", "[", `[{"key":1}]`, `["a"]`}).Draw(rt, "odd"))
			if rapid.Bool().Draw(rt, "keys") {
				var keys []string
				for i := range rapid.IntRange(0, 3).Draw(rt, "how many") {
					keys = append(keys, fmt.Sprintf(`{"key":"k%d","found":%t}`, i, rapid.Bool().Draw(rt, "found")))
				}
				raw = json.RawMessage("[" + strings.Join(keys, ",") + "]")
			}
			got, err := lists.decode("keys", raw)
			want, refused := elements[tutti.KeyRead]("keys", raw, maxKeys)
			if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(err) != fmt.Sprint(refused) {
				rt.Fatalf("%s: %v, want %v\n-want +got\n%s", raw, err, refused, diff)
			}
		}
	})
}

// TestEqualListsAreDecodedOnce: equal lists share their memory. All shared lists together stay within their bound, and so a
// node cannot fill the memory of the server.
func TestEqualListsAreDecodedOnce(t *testing.T) {
	lists := &keyLists{}
	list := func(i, size int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`[{"key":"k%d%s"}]`, i, strings.Repeat("x", size)))
	}
	decode := func(raw json.RawMessage) []tutti.KeyRead {
		t.Helper()
		keys, err := lists.decode("keys", raw)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if a, b := decode(list(1, 0)), decode(list(1, 0)); &a[0] != &b[0] {
		t.Error("equal lists were decoded twice")
	}
	a := decode(list(1, maxSharedList))
	if b := decode(list(1, maxSharedList)); &a[0] == &b[0] {
		t.Error("a list that is too large is shared")
	}
	for i := range 3 * maxShared / maxSharedList {
		decode(list(i, maxSharedList-200))
		decode(list(i, maxSharedList-200))
		size := 0
		for _, keys := range lists.known {
			size += sharedKey*len(keys) + len(keys[0].Key)
		}
		if size > maxShared {
			t.Fatalf("%d bytes are shared", size)
		}
	}
	if len(lists.known) == 0 {
		t.Error("nothing is shared")
	}
}
