package httpapi_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
)

// The type `silent` is a server that receives requests and never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestNoAnswerIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := httpapi.NewClient("http://silent", &http.Client{Transport: silent{}})
		_, err := c.ListJobs(t.Context())
		if tutti.CodeOf(err) != tutti.CodeDeadline {
			t.Errorf("%v, want a deadline", err)
		}
	})
}
