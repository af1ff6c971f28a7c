package arguments

import (
	"regexp"

	"monotron/internal/store"
)

// otherScheme begins an address in another store, or one that is written wrongly.
var otherScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]+:/+`)

// deriveObjects checks s3:// URLs: their form, and what is only for folders.
func (p *parser) deriveObjects() {
	c := &p.Checkpoint
	for _, u := range []struct{ flag, value string }{{"save", c.Save}, {"load", c.Load}, {"pretrained-checkpoint", c.Pretrained}} {
		if !store.IsURL(u.value) {
			if scheme := otherScheme.FindString(u.value); scheme != "" {
				p.clash(u.flag, "--%s %s: %s addresses are not supported; write s3://bucket/prefix, or a folder (./%[2]s, if a folder has this name)", u.flag, u.value, scheme)
			}
			continue
		}
		if _, err := store.Parse(u.value); err != nil {
			p.clash(u.flag, "--%s: %v", u.flag, err)
		}
	}
	if store.IsURL(c.Save) && c.Format != "" && c.Format != "native" {
		p.clash("save ckpt-format", "--ckpt-format %s cannot be combined with --save %s: only native checkpoints can be written to a bucket; leave --ckpt-format out, and convert the checkpoints with monotron convert", c.Format, c.Save)
	}
	if store.IsURL(c.SaveOnLoad) {
		p.clash("save-on-load", "--save-on-load must be a folder, not %s: only --save, --load and --pretrained-checkpoint accept s3:// URLs", c.SaveOnLoad)
	}
	if !store.IsURL(c.Save) && c.Save != "" {
		p.idle([]string{"save-local-dir"}, "if --save is not an s3:// URL")
	}
}
