"""Plans and graphs in other tools' languages."""
