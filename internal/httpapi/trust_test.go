package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
)

// The client gets the CAs by which it should verify the server. The client ignores these CAs if the CA of the
// present connection is not among them, or if the header is invalid.
func TestTheServerSaysWhatToTrust(t *testing.T) {
	var header string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Tutti-Trust", header)
		_, _ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	proves := string(tutti.DigestOf(server.Certificate().RawSubjectPublicKeyInfo))
	other := string(tutti.DigestOf([]byte("other")))
	for _, tc := range []struct {
		reason, header string
		heard          bool
	}{
		{"one CA", proves + " " + proves, true},
		{"two CAs, the other one signs", other + " " + proves + " " + other, true},
		{"nothing", "", false},
		{"a CA that does not prove the connection", other + " " + other, false},
		{"signed by a CA that is not named", other + " " + proves, false},
		{"text", proves + " CA", false},
		{"too many", strings.Repeat(proves+" ", 9) + proves, false},
	} {
		header = tc.header
		heard := false
		client := httpapi.NewClient(server.URL, server.Client())
		client.Trust = func(_ context.Context, should httpapi.Trust) {
			heard = true
			words := strings.Fields(tc.header)
			if string(should.Signer) != words[0] || len(should.CAs) != len(words)-1 {
				t.Errorf("%s: heard %+v", tc.reason, should)
			}
		}
		if _, err := client.ListNodes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.heard, heard); diff != "" {
			t.Errorf("%s: heard: -want +got\n%s", tc.reason, diff)
		}
	}
}
