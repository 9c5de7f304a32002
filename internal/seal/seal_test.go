package seal_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/wire"
)

func newBox(t *testing.T) (*ecdh.PrivateKey, string) {
	t.Helper()
	box, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return box, base64.StdEncoding.EncodeToString(box.PublicKey().Bytes())
}

var text = tutti.SecretText{Key: "db/password", ID: "0123456789abcdef", Value: json.RawMessage(`{"a":["hunter2",1]}`)}

func said(sealed []byte) tutti.SealedValue {
	return tutti.SealedValue{Key: text.Key, ID: text.ID, Sealed: sealed}
}

// TestNodesOpen checks that keys of nodes are valid keys of age. TestNodesOpen uses many keys, so
// that all bit patterns of a checksum occur.
func TestNodesOpen(t *testing.T) {
	for range 200 {
		box, public := newBox(t)
		sealed, err := seal.ToNode(text, public)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := seal.OpenNode(said(sealed), box); err != nil || string(got) != string(text.Value) {
			t.Fatalf("opened %s, %v", got, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	box, public := newBox(t)
	other, _ := newBox(t)
	sealed, err := seal.ToNode(text, public)
	if err != nil {
		t.Fatal(err)
	}
	notJSON, err := seal.ToNode(tutti.SecretText{Key: text.Key, ID: "other", Value: text.Value}, public)
	if err != nil {
		t.Fatal(err)
	}
	cut := sealed[:len(sealed)-3]
	flipped := append([]byte(nil), sealed...)
	flipped[len(flipped)-20] ^= 1
	for _, tc := range []struct {
		reason string
		key    *ecdh.PrivateKey
		v      tutti.SealedValue
		want   string
	}{
		{"another key", other, said(sealed), "not sealed to this key"},
		{"nothing", box, said(nil), "not sealed to this key"},
		{"cut", box, said(cut), "damaged"},
		{"changed", box, said(flipped), "damaged"},
		{"another secret in its place", box, tutti.SealedValue{Key: "db/user", ID: text.ID, Sealed: sealed}, `is another secret ("db/password")`},
		{"an old one", box, said(notJSON), "is another secret"},
	} {
		got, err := seal.OpenNode(tc.v, tc.key)
		if tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), tc.want) || got != nil {
			t.Errorf("%s: %s, %v; want %q", tc.reason, got, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the secret: %v", tc.reason, err)
		}
	}
}

func TestRecovery(t *testing.T) {
	private, public, err := seal.NewRecovery()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := seal.ToRecovery(text, []string{"group:web"}, public)
	if err != nil {
		t.Fatal(err)
	}
	v := said(sealed)
	v.For = []string{"group:web"}
	if got, err := seal.OpenRecovery(v, private); err != nil || string(got) != string(text.Value) {
		t.Errorf("opened %s, %v", got, err)
	}
	v.For = []string{"group:web", "node:thief"}
	if got, err := seal.OpenRecovery(v, private); tutti.CodeOf(err) != tutti.CodeRefused || got != nil || !strings.Contains(err.Error(), "was sealed for group:web") {
		t.Errorf("for others than it was sealed for: %s, %v", got, err)
	}
	if got, err := seal.PublicOf(private); err != nil || got != public {
		t.Errorf("public half %s, %v; want %s", got, err, public)
	}
	for _, bad := range []string{"", "age1", public + "x", strings.ToUpper(public), private, "age1pq1abc"} {
		if err := seal.ValidateRecovery(bad); tutti.CodeOf(err) != tutti.CodeInvalid && bad != strings.ToUpper(public) {
			t.Errorf("%q is taken for a public key: %v", bad, err)
		}
		if _, err := seal.ToRecovery(text, nil, bad); err == nil && bad != strings.ToUpper(public) {
			t.Errorf("sealed to %q", bad)
		}
	}
	if _, err := seal.OpenRecovery(said(sealed), "AGE-SECRET-KEY-1SECRET"); err == nil || strings.Contains(err.Error(), "1SECRET") {
		t.Errorf("an invalid private key: %v", err)
	}
}

func TestLargeSecrets(t *testing.T) {
	_, public := newBox(t)
	for size, good := range map[int]bool{tutti.MaxSecret: true, tutti.MaxSecret + 1: false} {
		large := text
		large.Value = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
		sealed, err := seal.ToNode(large, public)
		if (err == nil) != good {
			t.Errorf("%d bytes: %v", size, err)
		}
		if good {
			piece := tutti.Secret{Key: "k", ID: text.ID, For: []string{"node:a"}, Pieces: []tutti.Piece{{Node: "a", Box: tutti.BoxDigest(public), Sealed: sealed}}}
			if err := piece.Validate(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := seal.ToNode(text, "AAAA"); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("sealed to an invalid key: %v", err)
	}
}

// TestBatchesFitIntoMessages checks many nodes with long names, with secrets of different sizes.
func TestBatchesFitIntoMessages(t *testing.T) {
	_, public := newBox(t)
	var nodes []tutti.Recipient
	for i := range 300 {
		nodes = append(nodes, tutti.Recipient{Node: tutti.NodeName(fmt.Sprintf("%s%03d.example.net", strings.Repeat("n", 60), i)), BoxKey: public})
	}
	for _, size := range []int{20, 240, 400, 4000, tutti.MaxSecret} {
		large := text
		large.Value = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
		recovery, err := seal.ToNode(large, public)
		if err != nil {
			t.Fatal(err)
		}
		secret := tutti.Secret{Key: text.Key, ID: text.ID, For: []string{"group:" + strings.Repeat("g", 60)}, Recovery: recovery}
		batches, err := seal.Batches(secret, large, nodes[:min(len(nodes), 40+4_000_000/size)])
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range batches {
			raw, err := json.Marshal(wire.Publish{Run: "00000000-0000-4000-8000-000000000000", Key: b.Key, Secret: &tutti.SealSecret{Secret: b, Adds: true}})
			if err != nil || len(raw) > 190<<10 || b.Validate() != nil {
				t.Errorf("a secret of %d bytes, batch %d of %d: %d bytes, %v, %v", size, i, len(batches), len(raw), b.Validate(), err)
			}
		}
	}
}

func TestWeakKeysAreRefused(t *testing.T) {
	for _, key := range []string{"", "AAAA", base64.StdEncoding.EncodeToString(make([]byte, 32)), base64.StdEncoding.EncodeToString(append([]byte{1}, make([]byte, 31)...))} {
		if err := seal.CheckKey(key); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%q: %v", key, err)
		}
	}
}
