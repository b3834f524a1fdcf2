"""What strangers wrote: downloads, archives, pickles, images and text, checked before they are trusted."""
