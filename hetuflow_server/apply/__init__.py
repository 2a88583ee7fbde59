"""Applying documents, and creating and editing single jobs."""
