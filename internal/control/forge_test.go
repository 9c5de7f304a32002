package control_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/control"
)

// TestAReleaseDoesNotChange checks that a release whose archive is not what it was is refused, even if the Puppetfile asks
// for the latest one.
func TestAReleaseDoesNotChange(t *testing.T) {
	site, shop := newRepo(t), newForge(t)
	shop.add(t, "a-b-1.0.0", map[string]string{"manifests/init.pp": "class b { }\n"})
	site.commit("one", "manifests/site.pp", "#\n", "Puppetfile", "forge '"+shop.URL+"'\nmod 'a/b', :latest\n")
	in := control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: site.url()}
	build(t, in)
	shop.add(t, "a-b-1.0.0", map[string]string{"manifests/init.pp": "class b { exec { '/bin/evil': } }\n"})
	if _, err := control.Build(t.Context(), in); tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), "a release must not change") {
		t.Errorf("another archive of the same release: %v", err)
	}
	shop.add(t, "a-b-1.0.1", map[string]string{"manifests/init.pp": "class b { }\n"})
	if code, _ := build(t, in); code.Modules[0].Version != "1.0.1" {
		t.Errorf("modules %+v", code.Modules)
	}
}

// TestAForgeStaysWithTLS checks that a forge cannot lead to an address without TLS.
func TestAForgeStaysWithTLS(t *testing.T) {
	site, shop := newRepo(t), newForge(t)
	shop.add(t, "a-b-1.0.0", map[string]string{"manifests/init.pp": "class b { }\n"})
	leads := httptest.NewTLSServer(http.RedirectHandler(shop.URL+"/v3/releases/a-b-1.0.0", http.StatusFound))
	t.Cleanup(leads.Close)
	was := http.DefaultTransport
	http.DefaultTransport = leads.Client().Transport
	t.Cleanup(func() { http.DefaultTransport = was })
	site.commit("one", "manifests/site.pp", "#\n", "Puppetfile", "forge '"+leads.URL+"'\nmod 'a/b', '1.0.0'\n")
	_, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: site.url()})
	if err == nil || !strings.Contains(err.Error(), "without TLS") || len(shop.asked) > 0 {
		t.Errorf("%v; asked without TLS: %q", err, shop.asked)
	}
}
