package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
)

// TestNobodyIsSentElsewhere checks that a client sends its request only to the configured server. The request may
// contain values and tokens.
func TestNobodyIsSentElsewhere(t *testing.T) {
	reached := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		_, _ = w.Write([]byte("{}"))
	}))
	defer elsewhere.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/anything", status)
		}))
		client := httpapi.NewClient(s.URL, s.Client())
		calls := map[string]error{"set a value": client.SetValue(t.Context(), "shared/x", []byte(`"hunter2"`))}
		_, calls["join"] = client.Enrol(t.Context(), api.EnrolRequest{Name: "web-01", Secret: []byte("secret")})
		calls["watch"] = client.WatchJob(t.Context(), api.WatchJob{}, func(api.Watched) error { return nil })
		for what, err := range calls {
			if tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), elsewhere.URL) {
				t.Errorf("%d, %s: %v; want that it is refused, and the address", status, what, err)
			}
		}
		s.Close()
	}
	if reached > 0 {
		t.Errorf("%d requests went elsewhere", reached)
	}
}
