"""In place of ring_flash_attn.utils: see the package."""

from ring_flash_attn import __getattr__ as __getattr__
