package web

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Guard keeps pages of other sites from asking a server through the browser of somebody who can
// reach it.
//
// A name that was made to mean this machine (DNS rebinding) is refused: at a loopback address the
// Host is localhost, an address, this host's name, or one of Hosts. A request whose Origin is
// neither the server's own nor one of Origins is refused, and so is one that may change something
// and that the browser marks as another site's (Sec-Fetch-Site). Programs send neither header.
type Guard struct {
	Origins []string // scheme://host[:port] of pages that may ask; "*": all
	Hosts   []string // further names of this server, as those that a proxy passes on
	// Refuse answers a request that is refused; nil: as plain text.
	Refuse func(w http.ResponseWriter, status int, message string)
}

// Check says what is wrong with Origins and Hosts.
func (g *Guard) Check() error {
	var all []error
	for _, o := range g.Origins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != o) {
			all = append(all, errors.New("origin "+o+" is not of the form scheme://host[:port]; use one such as https://example.org, or *"))
		}
	}
	for _, h := range g.Hosts {
		if h == "" || strings.ContainsAny(h, "/:@ ") {
			all = append(all, errors.New("host "+h+" is not a host name; leave out scheme and port"))
		}
	}
	return errors.Join(all...)
}

// Wrap lets through to next what may ask, with the headers by which a browser shows an answer to a
// page of Origins, and answers the question that browsers ask first (preflight).
func (g *Guard) Wrap(next http.Handler) http.Handler {
	marks := http.NewCrossOriginProtection() // Sec-Fetch-Site, for requests that may change something
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !g.named(r) {
			g.refuse(w, http.StatusForbidden, "the host "+clip(r.Host)+" is not a name of this server; use 127.0.0.1 or localhost")
			return
		}
		origin := r.Header.Get("Origin")
		if origin == "" {
			origin = refererOf(r)
		}
		switch {
		case origin == "" && marks.Check(r) != nil:
			g.refuse(w, http.StatusForbidden, "the request comes from a page of another site, whose origin is not allowed")
			return
		case origin == "" || own(origin, r):
		case g.allows(origin):
			if allow(w, r, origin) {
				return
			}
		default:
			g.refuse(w, http.StatusForbidden, "the origin "+clip(origin)+" is not allowed by this server")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Guard) refuse(w http.ResponseWriter, status int, message string) {
	if g.Refuse != nil {
		g.Refuse(w, status, message)
		return
	}
	http.Error(w, message, status)
}

func (g *Guard) allows(origin string) bool {
	return slices.Contains(g.Origins, "*") || slices.Contains(g.Origins, origin)
}

// named reports whether the Host of a request may mean this server.
func (g *Guard) named(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if t, ok := at.(*net.TCPAddr); !ok || !t.IP.IsLoopback() {
		return true // which names others have for this machine is not known here
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	same := func(name string) bool { return strings.EqualFold(host, name) }
	if same("localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil || slices.ContainsFunc(g.Hosts, same) {
		return true
	}
	name, err := os.Hostname() // some systems give it a loopback address
	return err == nil && name != "" && same(name)
}

// own reports whether an origin is the server's, as the client names it.
func own(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// refererOf is the origin of the page that asks for a change in a browser that sends no Origin.
func refererOf(r *http.Request) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return ""
	}
	u, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// longestList of headers that a page wants to send.
const longestList = 1 << 10

// allow lets a browser show the answer to a page; true: the request was a preflight, and is answered.
func allow(w http.ResponseWriter, r *http.Request, origin string) (answered bool) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT")
	if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" && len(wanted) <= longestList {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// clip shortens what a stranger sent.
func clip(s string) string {
	const most = 100
	return strings.ToValidUTF8(s[:min(len(s), most)], "?")
}
